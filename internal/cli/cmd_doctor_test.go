package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// doctor runs `quern doctor --json` and returns its findings by name.
func doctor(t *testing.T, wantCode int, args ...string) map[string]finding {
	t.Helper()
	stdout, stderr, code := run(t, append([]string{"doctor", "--json"}, args...)...)
	var list []finding
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != wantCode || stderr != "" {
		t.Fatalf("doctor %v: code %d, want %d; %v: %s%s", args, code, wantCode, err, stdout, stderr)
	}
	found := map[string]finding{}
	for _, f := range list {
		saysItself := f.Name == "database" || f.Name == "model" // errors of opening end with what to do
		if f.Detail == "" || f.State != stateOK && f.Advice == "" && !saysItself {
			t.Errorf("doctor %v: %s says too little: %+v", args, f.Name, f)
		}
		found[f.Name] = f
	}
	return found
}

func expectStates(t *testing.T, got map[string]finding, want map[string]state) {
	t.Helper()
	for name, state := range want {
		if got[name].State != state {
			t.Errorf("%s: %+v, want %s", name, got[name], state)
		}
	}
}

func TestDoctorOnASoundMachine(t *testing.T) {
	files := demoFiles(t)
	t.Setenv("HF_HUB_CACHE", filepath.Join(t.TempDir(), "not there yet"))
	expectStates(t, doctor(t, exitOK, "--model", files.Model, "--db", files.Database), map[string]state{
		"build": stateOK, "memory": stateOK, "guard": stateOK, "answer": stateOK, "downloads": stateOK, "history": stateOK, "model": stateOK, "database": stateOK,
	})
}

// Without a home folder or a cache questions are still answered: that is a warning. What was asked about by name and
// does not work is a failure, each with what to do.
func TestDoctorOnABrokenMachine(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, []byte("neither a model nor a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HF_HUB_CACHE", text)
	t.Setenv("QUERN_HISTORY", filepath.Join(text, "history.sqlite"))
	expectStates(t, doctor(t, exitOK), map[string]state{"downloads": stateWarning, "history": stateWarning, "answer": stateOK})

	for _, name := range []string{"HF_HUB_CACHE", "HF_HOME", "QUERN_HISTORY", "XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME"} {
		t.Setenv(name, "")
	}
	expectStates(t, doctor(t, exitOK), map[string]state{"downloads": stateWarning, "history": stateWarning, "answer": stateOK})

	missing := filepath.Join(dir, "missing")
	expectStates(t, doctor(t, exitFailed, "--model", missing, "--db", missing, "--data", missing),
		map[string]state{"model": stateFailed, "database": stateFailed, "data": stateFailed})
	expectStates(t, doctor(t, exitFailed, "--model", text, "--db", text, "--data", dir),
		map[string]state{"model": stateFailed, "database": stateFailed, "data": stateFailed})
	expectStates(t, doctor(t, exitFailed, "--model", "no/such-model", "--data", text), map[string]state{"model": stateFailed, "data": stateFailed})
}
