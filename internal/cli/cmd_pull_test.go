package cli

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/testenv"
)

// hubOf serves repositories from memory as the hub does: ORG/NAME to names to contents.
func hubOf(t *testing.T, repos map[string]map[string][]byte) {
	t.Helper()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		switch {
		case len(path) == 6 && path[0] == "api" && repos[path[2]+"/"+path[3]] != nil:
			var siblings []any
			for name, data := range repos[path[2]+"/"+path[3]] {
				sum := sha256.Sum256(data)
				siblings = append(siblings, map[string]any{"rfilename": name, "size": len(data), "blobId": commit,
					"lfs": map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(data)}})
			}
			json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": siblings})
		case len(path) == 5 && path[2] == "resolve":
			w.Write(repos[path[0]+"/"+path[1]][path[4]])
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
}

func folder(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func zipped(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for name, data := range files {
		w, err := archive.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(data)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A pulled adapter goes onto the pulled base that it names, and onto no other, without a fingerprint to state.
func TestPullThenMerge(t *testing.T) {
	parts := filepath.Join(testenv.Root(), "testdata", "demo-model")
	base, adapter := folder(t, filepath.Join(parts, "base")), folder(t, filepath.Join(parts, "adapters", "stage1"))
	var config map[string]any
	if err := json.Unmarshal(adapter["adapter_config.json"], &config); err != nil {
		t.Fatal(err)
	}
	config["base_model_name_or_path"] = "demo/base"
	adapter["adapter_config.json"], _ = json.Marshal(config)
	hubOf(t, map[string]map[string][]byte{
		"demo/base": base, "demo/sibling": base, "demo/stage1": adapter,
		"demo/agent": {"checkpoint-7-adapter.zip": zipped(t, adapter), "README.md": []byte("an agent")},
	})
	out := filepath.Join(t.TempDir(), "merged")
	merge := func(base, adapter, out string) (string, int) {
		_, stderr, code := run(t, "lora", "merge", "--base", base, "--adapter", adapter, "--out", out)
		return stderr, code
	}

	if stderr, code := merge("demo/base", "demo/stage1", out); code != exitFailed || !strings.Contains(stderr, "quern pull demo/base") {
		t.Errorf("before the base was pulled: code %d, %s", code, stderr)
	}
	for _, name := range []string{"demo/base", "demo/sibling"} {
		if _, stderr, code := run(t, "pull", name); code != exitOK {
			t.Fatalf("pull %s: %s", name, stderr)
		}
	}
	for _, missing := range []string{"demo/stage1", "demo/agent:*.zip"} {
		if stderr, code := merge("demo/base", missing, out); code != exitFailed || !strings.Contains(stderr, "quern pull "+missing) {
			t.Errorf("before %s was pulled: code %d, %s", missing, code, stderr)
		}
		if stdout, stderr, code := run(t, "pull", missing); code != exitOK || strings.HasPrefix(missing, "demo/agent") != strings.HasSuffix(stdout, "-adapter.zip\n") {
			t.Fatalf("pull %s: %s%s", missing, stdout, stderr)
		}
	}
	if stderr, code := merge("demo/sibling", "demo/stage1", out); code != exitFailed || !strings.Contains(stderr, "demo/base") {
		t.Errorf("onto a base that the adapter does not name: code %d, %s", code, stderr)
	}
	if _, err := os.Stat(out); err == nil {
		t.Fatal("a refused merge left its output")
	}
	for i, adapter := range []string{"demo/stage1", "demo/agent:*.zip"} {
		out := out + string(rune('1'+i))
		if stderr, code := merge("demo/base", adapter, out); code != exitOK {
			t.Errorf("%s onto its base: code %d, %s", adapter, code, stderr)
		}
		if stdout, _, code := run(t, "inspect", out); code != exitOK || strings.Contains(stdout, "MERGED INTO A BASE THAT IS NOT") || !strings.Contains(stdout, "demo/base") {
			t.Errorf("inspect: code %d, %s", code, stdout)
		}
	}
	if stderr, code := merge("demo/base", "demo/agent", out+"3"); code != exitFailed || !strings.Contains(stderr, "adapter") {
		t.Errorf("a folder without an adapter: code %d, %s", code, stderr)
	} else {
		t.Log(stderr)
	}
}

func TestPullRefuses(t *testing.T) {
	hubOf(t, map[string]map[string][]byte{"demo/base": {"config.json": []byte("{}")}})
	for name, want := range map[string]string{"demo/none": "demo/none", "demo/base:*.gguf": "*.gguf"} {
		stdout, stderr, code := run(t, "pull", name)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, %q, %s", name, code, stdout, stderr)
		}
	}
	stdout, _, code := run(t, "pull", "demo/base", "--json")
	var got struct {
		ID, Dir string
		Files   []string
		Bytes   int
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitOK || got.ID != "demo/base" || len(got.Files) != 1 || got.Bytes != 2 {
		t.Errorf("code %d, %v: %s", code, err, stdout)
	}
}
