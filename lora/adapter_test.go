package lora

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/testenv"
)

// adapterPaths lists every adapter of the oracle folder: its folders, those of stages, and archives.
func adapterPaths(t *testing.T) []string {
	t.Helper()
	root := testenv.Oracles(t, "models", "adapters")
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == ConfigFile:
			paths = append(paths, filepath.Dir(path))
		case filepath.Ext(path) == ".zip":
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil || len(paths) == 0 {
		t.Fatalf("no adapters in %s: %v", root, err)
	}
	return paths
}

func TestOpenAdapters(t *testing.T) {
	for _, path := range adapterPaths(t) {
		a, err := Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("%s: %d modules, trained on %s", a.Name(), len(a.Modules), a.Config.BaseModel)
		a.Close()
	}
}

func TestArchiveEqualsFolder(t *testing.T) {
	hashes := map[AdapterHash][]string{}
	for _, path := range adapterPaths(t) {
		a, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		hashes[a.SHA256] = append(hashes[a.SHA256], path)
		a.Close()
	}
	for _, paths := range hashes {
		if len(paths) > 1 {
			return // an archive and the folder it was made from
		}
	}
	t.Log("no archive here has its folder beside it")
}

// badCase is expect.json of a folder that must be refused.
type badCase struct {
	dir    string // with the adapter's files, or the archive's path
	Case   string `json:"case"`
	Base   string `json:"base"`
	Reason string `json:"reason"`
}

func badCases(t *testing.T) []badCase {
	t.Helper()
	root := testenv.Oracles(t, "models", "bad")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var cases []badCase
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(root, e.Name(), "expect.json"))
		if err != nil {
			continue
		}
		c := badCase{dir: filepath.Join(root, e.Name())}
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		if archives, _ := filepath.Glob(filepath.Join(c.dir, "*.zip")); len(archives) == 1 {
			c.dir = archives[0]
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		t.Fatalf("no cases in %s", root)
	}
	return cases
}

func TestKeys(t *testing.T) {
	for name, want := range map[string]key{
		"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":                           {"model.layers.0.self_attn.q_proj", roleA, ""},
		"base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight":                   {"model.layers.0.self_attn.q_proj", roleB, "default"},
		"base_model.model.base_model.model.layers.0.mlp.up_proj.lora_B.bias":                       {"layers.0.mlp.up_proj", roleBBias, ""},
		"base_model.model._orig_mod.model.layers.3._checkpoint_wrapped_module.mlp.x.lora_A.weight": {"model.layers.3.mlp.x", roleA, ""},
		"base_model.model.model.embed_tokens.lora_embedding_A":                                     {"model.embed_tokens", roleEmbedA, ""},
		"base_model.model.model.embed_tokens.lora_embedding_B.default":                             {"model.embed_tokens", roleEmbedB, "default"},
		"base_model.model.lm_head.modules_to_save.default.weight":                                  {"lm_head", roleWeight, "default"},
		"base_model.model.lm_head.modules_to_save.weight":                                          {"lm_head", roleWeight, ""},
		"base_model.model.lm_head.weight":                                                          {"lm_head", roleWeight, ""},
		"base_model.model.lm_head.original_module.weight":                                          {"lm_head", roleBaseWeight, ""},
		"base_model.model.lm_head.base_layer.weight":                                               {"lm_head", roleBaseWeight, ""},
		"base_model.model.model.layers.0.self_attn.k_proj.bias":                                    {"model.layers.0.self_attn.k_proj", roleBias, ""},
		"base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector":                        {"model.layers.0.mlp.up_proj", roleMagnitude, ""},
		"base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector.default.weight":         {"model.layers.0.mlp.up_proj", roleMagnitude, "default"},
		"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta":                 {"model.embed_tokens", roleTokens, ""},
		"base_model.model.model.embed_tokens.token_adapter.base_layer.weight":                      {"model.embed_tokens", roleBaseWeight, ""},
		"base_model.model.model.language_model.layers.0.linear_attn.in_proj_qkv.lora_A.weight":     {"model.language_model.layers.0.linear_attn.in_proj_qkv", roleA, ""},
	} {
		if got, err := parseKey(name); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	for _, name := range []string{
		"base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight",
		"base_model.model.model.layers.0.self_attn.q_proj.lora_A.bias",
		"base_model.model.model.layers.0.self_attn.q_proj.lora_A.a.b.weight",
		"base_model.model.weight",
		"base_model.model.layers.0.q_proj.hada_w1_a",
		"",
	} {
		if k, err := parseKey(name); err == nil {
			t.Errorf("%q was taken for %+v", name, k)
		}
	}
}

func TestConfigRefusals(t *testing.T) {
	for json, want := range map[string]string{
		`{"peft_type":"LOHA"}`:                   "LOHA",
		`{}`:                                     "peft_type",
		`[]`:                                     "object",
		`{"peft_type":"LORA","r":0}`:             "r is 0",
		`{"peft_type":"LORA","r":2.5}`:           "r is 2.5",
		`{"peft_type":"LORA","r":8,"r":16}`:      "twice",
		`{"peft_type":"LORA","use_qalora":true}`: "use_qalora",
		`{"peft_type":"LORA","use_bdlora":{"nblocks":2}}`:                       "use_bdlora",
		`{"peft_type":"LORA","alora_invocation_tokens":[1]}`:                    "alora_invocation_tokens",
		`{"peft_type":"LORA","arrow_config":{"top_k":3}}`:                       "arrow_config",
		`{"peft_type":"LORA","target_parameters":["experts.down_proj"]}`:        "target_parameters",
		`{"peft_type":"LORA","layer_replication":[[0,2]]}`:                      "layer_replication",
		`{"peft_type":"LORA","init_lora_weights":"pissa_niter_4"}`:              "PiSSA",
		`{"peft_type":"LORA","init_lora_weights":"olora"}`:                      "OLoRA",
		`{"peft_type":"LORA","init_lora_weights":"surprise"}`:                   "surprise",
		`{"peft_type":"LORA","bias":"some"}`:                                    "bias",
		`{"peft_type":"LORA","new_maths":true}`:                                 "new_maths",
		`{"peft_type":"LORA","target_modules":".*q","layers_to_transform":[1]}`: "layers_to_transform",
		`{"peft_type":"LORA","target_modules":"(q"}`:                            "target_modules",
		`{"peft_type":"LORA","rank_pattern":{"q":0}}`:                           "rank_pattern",
		`{"peft_type":"LORA","lora_bias":true,"use_dora":true}`:                 "lora_bias",
	} {
		if _, err := ParseConfig([]byte(json)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want a complaint about %q", json, err, want)
		}
	}
}

func TestTargets(t *testing.T) {
	const q1 = "model.layers.1.self_attn.q_proj"
	for _, c := range []struct {
		config, module string
		want           bool
	}{
		{`"target_modules":["q_proj"]`, q1, true},
		{`"target_modules":["self_attn.q_proj"]`, q1, true},
		{`"target_modules":["proj"]`, q1, false},
		{`"target_modules":["q_proj"],"layers_to_transform":[0,2]`, q1, false},
		{`"target_modules":["q_proj"],"layers_to_transform":1`, q1, true},
		{`"target_modules":["q_proj"],"layers_to_transform":[]`, q1, true},
		{`"target_modules":["q_proj"],"layers_to_transform":[1],"layers_pattern":"layers"`, q1, true},
		{`"target_modules":["q_proj"],"layers_to_transform":[1],"layers_pattern":["h","blocks"]`, q1, false},
		{`"target_modules":["` + q1 + `"],"layers_to_transform":[0]`, q1, true}, // a whole path ignores the layers
		{`"target_modules":["q_proj"],"exclude_modules":["layers.1.self_attn.q_proj"]`, q1, false},
		{`"target_modules":["q_proj"],"exclude_modules":".*layers\\.1\\..*"`, q1, false},
		{`"target_modules":["q_proj"],"modules_to_save":["self_attn"]`, q1, false},
		{`"target_modules":"all-linear"`, q1, true},
		{`"target_modules":".*\\.(q_proj|v_proj)"`, q1, true},
		{`"target_modules":"q_proj"`, q1, false}, // a string has to match the whole path
		{`"target_modules":"^(?!.*layers\\.1\\.).*q_proj"`, q1, false},
		{`"target_modules":"^(?!.*visual).*q_proj$"`, q1, true},
	} {
		config, err := ParseConfig([]byte(`{"peft_type":"LORA",` + c.config + `}`))
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		if _, hit := config.Hits(c.module); hit != c.want {
			t.Errorf("%s: hits %s: %v, want %v", c.config, c.module, hit, c.want)
		}
	}
}

// TestPatternOrder: the first pattern of the file that matches wins, also over a later more exact one.
func TestPatternOrder(t *testing.T) {
	config, err := ParseConfig([]byte(`{"peft_type":"LORA","r":8,"lora_alpha":16,
		"rank_pattern":{"q_proj":4,"layers.1.self_attn.q_proj":2,"layers\\.[02]\\.mlp\\.up_proj":12},"alpha_pattern":{"^model.layers.1.*":32}}`))
	if err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]float64{
		"model.layers.1.self_attn.q_proj": 32.0 / 4,
		"model.layers.0.mlp.up_proj":      16.0 / 12,
		"model.layers.1.mlp.up_proj":      32.0 / 8,
		"model.layers.10.mlp.up_proj":     32.0 / 8,
		"model.layers.2.mlp.down_proj":    16.0 / 8,
	} {
		if got := config.ScaleOf(module); got != want {
			t.Errorf("%s: scale %v, want %v", module, got, want)
		}
	}
}
