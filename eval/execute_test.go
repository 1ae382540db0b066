package eval

import (
	"context"
	"testing"
	"time"

	"quern/internal/testenv"
	"quern/sqlguard"
)

// A gold query that takes longer than a prediction may take is no failure, and runs once only.
func TestDeadlines(t *testing.T) {
	exec, err := NewExecutor(1, Deadlines{Prediction: 20 * time.Millisecond, Gold: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Close()
	database := testenv.Root() + "/testdata/demo-model/heldout/database/harbor/harbor.sqlite"
	const slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000000) SELECT count(*) FROM n"
	ctx := context.Background()
	gold, err := exec.Gold(ctx, database, slow)
	if err != nil || gold.Failure != nil || len(gold.Rows) != 1 || gold.Rows[0][0].Int != 4000000 {
		t.Fatalf("the gold query: %+v, %v", gold, err)
	}
	predicted, err := exec.Query(ctx, database, slow)
	if err != nil || predicted.Failure == nil || predicted.Failure.Kind != sqlguard.TimedOut {
		t.Errorf("the same query as a prediction: %+v, %v", predicted, err)
	}
	again, err := exec.Gold(ctx, database, slow)
	if err != nil || again.Elapsed != gold.Elapsed {
		t.Errorf("the gold query was run again: %v, before %v", again.Elapsed, gold.Elapsed)
	}
}
