package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	model  = "org/tiny"
)

// fakeHub serves one repository and can be told to misbehave.
type fakeHub struct {
	files map[string][]byte // small ones plain, big ones (over 1 kB) as LFS

	mu        sync.Mutex
	served    int64 // bytes of file content
	dropAfter int   // break the connection after so many bytes of each answer (0: never)
	noRanges  bool
	lie       map[string]string // name -> content served in place of the real one
	listed    map[string]int64  // name -> size stated in place of the real one
	errors    int               // answer 503 so many times first
	gated     bool
	token     string
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.errors > 0 {
		h.errors--
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	if h.gated {
		w.Header().Set("X-Error-Code", "GatedRepo")
		http.Error(w, "gated", http.StatusForbidden)
		return
	}
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/models/"+model+"/revision/") {
		h.list(w)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/"+model+"/resolve/"+commit+"/")
	content, found := h.files[name]
	if !ok || !found {
		http.NotFound(w, r)
		return
	}
	if lie, ok := h.lie[name]; ok {
		content = []byte(lie)
	}
	h.send(w, r, content)
}

func (h *fakeHub) list(w http.ResponseWriter) {
	var siblings []map[string]any
	for name, content := range h.files {
		size := int64(len(content))
		if s, ok := h.listed[name]; ok {
			size = s
		}
		git := sha1.Sum(append([]byte(fmt.Sprintf("blob %d\x00", len(content))), content...))
		entry := map[string]any{"rfilename": name, "size": size, "blobId": hex.EncodeToString(git[:])}
		if len(content) > 1000 {
			sum := sha256.Sum256(content)
			entry["lfs"] = map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": size}
		}
		siblings = append(siblings, entry)
	}
	json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": siblings})
}

func (h *fakeHub) send(w http.ResponseWriter, r *http.Request, content []byte) {
	from := 0
	if spec, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !h.noRanges {
		from, _ = strconv.Atoi(strings.TrimSuffix(spec, "-"))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
	}
	rest := content[from:]
	w.Header().Set("Content-Length", strconv.Itoa(len(rest)))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	cut := len(rest)
	if h.dropAfter > 0 {
		cut = min(cut, h.dropAfter)
	}
	w.Write(rest[:cut])
	h.served += int64(cut)
	if cut < len(rest) {
		panic(http.ErrAbortHandler)
	}
}

// bytesServed is how much file content has been sent so far.
func (h *fakeHub) bytesServed() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served
}

// dropAfterBytes changes where connections break.
func (h *fakeHub) dropAfterBytes(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropAfter = n
}

func startHub(t *testing.T, h *fakeHub) *Client {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	weights := make([]byte, 300_000)
	for i := range weights {
		weights[i] = byte(random.Uint32())
	}
	h.files = map[string][]byte{
		"config.json":          []byte(`{"a": 1}`),
		"sub/notes.txt":        []byte("hello"),
		"model.safetensors":    weights,
		"sub/same.safetensors": weights,
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return &Client{Endpoint: server.URL, Cache: Cache{t.TempDir()}, Parallel: 3, Retries: 9, Backoff: time.Microsecond, HTTP: server.Client()}
}

func mustPull(t *testing.T, c *Client, ref string) Pulled {
	t.Helper()
	r, err := ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Pull(context.Background(), r, "main")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func checkFiles(t *testing.T, h *fakeHub, got Pulled) {
	t.Helper()
	if len(got.Files) == 0 {
		t.Fatal("nothing was pulled")
	}
	for _, name := range got.Files {
		content, err := os.ReadFile(filepath.Join(got.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content, h.files[name]) {
			t.Errorf("%s: %d bytes differ from the hub's %d", name, len(content), len(h.files[name]))
		}
	}
}

func TestPullIsWholeAndPullsOnce(t *testing.T) {
	h := &fakeHub{}
	c := startHub(t, h)
	var last, total int64
	c.Progress = func(d, n int64) { last, total = d, n }
	got := mustPull(t, c, model)
	checkFiles(t, h, got)
	if len(got.Files) != len(h.files) || last != total || total != int64(len(h.files["model.safetensors"])+len(h.files["config.json"])+len(h.files["sub/notes.txt"])) {
		t.Errorf("files %v, progress %d of %d", got.Files, last, total)
	}
	before := h.bytesServed()
	if again := mustPull(t, c, model); again.Bytes != 0 || h.bytesServed() != before {
		t.Errorf("a second pull fetched %d bytes", again.Bytes)
	}
	if dir, ok := c.Cache.Snapshot(model, "main"); !ok || dir != got.Dir {
		t.Errorf("Snapshot = %q, %v; want %q", dir, ok, got.Dir)
	}
}

func TestPullChoosesFiles(t *testing.T) {
	h := &fakeHub{}
	c := startHub(t, h)
	if got := mustPull(t, c, model+":*.json"); len(got.Files) != 1 || got.Files[0] != "config.json" {
		t.Errorf("*.json took %v", got.Files)
	}
	if _, err := c.Pull(context.Background(), Ref{ID: model, Pattern: "nope"}, "main"); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("a pattern without a match: %v; want the list of files", err)
	}
}

func TestDroppedConnectionsAreResumed(t *testing.T) {
	for _, noRanges := range []bool{false, true} {
		h := &fakeHub{dropAfter: 100_000, noRanges: noRanges}
		c := startHub(t, h)
		if noRanges {
			h.dropAfterBytes(0)
		}
		got := mustPull(t, c, model)
		checkFiles(t, h, got)
		if served := h.bytesServed(); !noRanges && served > 301_000 {
			t.Errorf("resuming served %d bytes for 300013", served)
		}
	}
}

func TestAnEarlierPartIsTakenUp(t *testing.T) {
	h := &fakeHub{dropAfter: 100_000}
	c := startHub(t, h)
	c.Retries = 0
	if _, err := c.Pull(context.Background(), Ref{ID: model, Pattern: "model.safetensors"}, "main"); err == nil {
		t.Fatal("a broken connection without retries is an error")
	}
	h.dropAfterBytes(0)
	checkFiles(t, h, mustPull(t, c, model+":model.safetensors"))
	if served := h.bytesServed(); served != 300_000 {
		t.Errorf("%d bytes were served in all, want each byte once", served)
	}
}

func TestLiesAreRefused(t *testing.T) {
	wrong := strings.Repeat("x", 300_000)
	for name, h := range map[string]*fakeHub{
		"wrong content":         {lie: map[string]string{"model.safetensors": wrong}},
		"wrong small content":   {lie: map[string]string{"config.json": `{"a": 2}`}},
		"longer than listed":    {listed: map[string]int64{"model.safetensors": 1000, "sub/same.safetensors": 1000}},
		"shorter than listed":   {listed: map[string]int64{"model.safetensors": 400_000, "sub/same.safetensors": 400_000}},
		"more than the disk":    {listed: map[string]int64{"model.safetensors": 1 << 60, "sub/same.safetensors": 1 << 60}},
		"gated":                 {gated: true},
		"always broken":         {errors: 1 << 30},
		"private without token": {token: "secret"},
	} {
		c := startHub(t, h)
		got, err := c.Pull(context.Background(), Ref{ID: model}, "main")
		if err == nil {
			t.Errorf("%s: pulled %v", name, got.Files)
			continue
		}
		t.Logf("%s: %v", name, err)
		left, _ := filepath.Glob(filepath.Join(c.Cache.Dir, "*", "snapshots", "*", "*"))
		if len(left) > 0 {
			t.Errorf("%s: left %v under their names", name, left)
		}
	}
}

func TestTokenAndPassingErrors(t *testing.T) {
	h := &fakeHub{token: "secret", errors: 3}
	c := startHub(t, h)
	c.Token = "secret"
	checkFiles(t, h, mustPull(t, c, model))
}

func TestCancelledPullStops(t *testing.T) {
	h := &fakeHub{errors: 1 << 30}
	c := startHub(t, h)
	c.Backoff = time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Pull(ctx, Ref{ID: model}, "main"); err == nil {
		t.Error("a cancelled pull succeeded")
	}
}

func TestHostileListings(t *testing.T) {
	for _, name := range []string{"../../escape", "/etc/passwd", `a\..\b`} {
		h := &fakeHub{}
		c := startHub(t, h)
		h.files[name] = []byte("x")
		if _, err := c.Pull(context.Background(), Ref{ID: model}, "main"); err == nil {
			t.Errorf("%q: pulled", name)
		}
	}
	for _, ref := range []string{"", "noslash", "../x", "a/b/c", "org/..", "a b/c"} {
		if _, err := ParseRef(ref); err == nil {
			t.Errorf("ParseRef(%q) succeeded", ref)
		}
	}
}
