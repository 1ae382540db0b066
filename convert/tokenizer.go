package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"quern/gguf"
)

// ErrTokenizer is wrapped when a tokenizer is not one that llama.cpp is known to reproduce.
var ErrTokenizer = errors.New("unknown tokenizer")

// Token types of tokenizer.ggml.token_type (llama.h: enum llama_token_type).
const (
	tokenNormal      int32 = 1
	tokenControl     int32 = 3
	tokenUserDefined int32 = 4
	tokenUnused      int32 = 5
)

// preTokenizers names, for the regular expression that splits text into words, the pre-tokenizer of llama.cpp that
// does the same (llama-vocab.cpp: llm_tokenizer_bpe). The expressions are those of the published tokenizers.
var preTokenizers = map[string]string{
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:             "qwen2",
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: "qwen35",
}

// tokenizer is what the files tokenizer.json and tokenizer_config.json of a checkpoint say.
type tokenizer struct {
	AddedTokens  []addedToken    `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Model        struct {
		Type   string         `json:"type"`
		Vocab  map[string]int `json:"vocab"`
		Merges mergeList      `json:"merges"`
	} `json:"model"`

	config map[string]json.RawMessage // tokenizer_config.json
}

type addedToken struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special"`
}

// mergeList reads merges in both forms in which they are stored: "a b", and ["a", "b"]. In the second a part may hold
// a space, which GGUF writes as the letter that byte-level BPE has for it anyway.
type mergeList []string

func (m *mergeList) UnmarshalJSON(data []byte) error {
	var joined []string
	if json.Unmarshal(data, &joined) == nil {
		*m = joined
		return nil
	}
	var pairs [][]string
	if err := json.Unmarshal(data, &pairs); err != nil {
		return err
	}
	for i, p := range pairs {
		if len(p) != 2 {
			return fmt.Errorf("merge %d has %d parts", i, len(p))
		}
		const space = "Ġ" // byte-level BPE's letter for 0x20
		*m = append(*m, strings.ReplaceAll(p[0], " ", space)+" "+strings.ReplaceAll(p[1], " ", space))
	}
	return nil
}

// readTokenizer reads the tokenizer among the files of a checkpoint.
func readTokenizer(files fs.FS) (*tokenizer, error) {
	t := &tokenizer{}
	if err := readJSON(files, "tokenizer.json", t); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the folder has no tokenizer.json; save the tokenizer with a recent version of Transformers, which writes one", ErrTokenizer)
	} else if err != nil {
		return nil, err
	}
	if t.Model.Type != "" && t.Model.Type != "BPE" {
		return nil, fmt.Errorf("%w: tokenizer.json is of type %s, only BPE is supported", ErrTokenizer, t.Model.Type)
	}
	if err := readJSON(files, "tokenizer_config.json", &t.config); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(t.Model.Merges) == 0 {
		var err error
		if t.Model.Merges, err = readMerges(files); err != nil {
			return nil, err
		}
	}
	return t, t.addOlder()
}

// addOlder adds the tokens that only tokenizer_config.json has, as older checkpoints do.
func (t *tokenizer) addOlder() error {
	raw, ok := t.config["added_tokens_decoder"]
	if !ok {
		return nil
	}
	var byID map[int]addedToken
	if err := json.Unmarshal(raw, &byID); err != nil {
		return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %w", err)
	}
	for id, token := range byID {
		if !slices.ContainsFunc(t.AddedTokens, func(a addedToken) bool { return a.Content == token.Content }) {
			token.ID = id
			t.AddedTokens = append(t.AddedTokens, token)
		}
	}
	return nil
}

func readMerges(files fs.FS) ([]string, error) {
	data, err := fs.ReadFile(files, "merges.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: neither tokenizer.json nor merges.txt has merges", ErrTokenizer)
	}
	if err != nil {
		return nil, err
	}
	var merges []string
	for i, line := range strings.Split(string(data), "\n") {
		if i == 0 && strings.HasPrefix(line, "#") {
			continue
		}
		if parts := strings.Fields(line); len(parts) == 2 {
			merges = append(merges, parts[0]+" "+parts[1])
		}
	}
	return merges, nil
}

// metadata returns the tokenizer's entries in llama.cpp's order (conversion/base.py: _set_vocab_gpt2). vocabSize is
// the number of rows of the embedding; pre names the pre-tokenizer, "" to recognise it.
func (t *tokenizer) metadata(files fs.FS, vocabSize int, pre string) (gguf.Metadata, error) {
	if pre == "" {
		var err error
		if pre, err = t.preTokenizer(); err != nil {
			return nil, err
		}
	}
	tokens, types, err := t.tokens(vocabSize)
	if err != nil {
		return nil, err
	}
	var m gguf.Metadata
	m.Set("tokenizer.ggml.model", "gpt2")
	m.Set("tokenizer.ggml.pre", pre)
	m.Set("tokenizer.ggml.tokens", tokens)
	m.Set("tokenizer.ggml.token_type", types)
	m.Set("tokenizer.ggml.merges", []string(t.Model.Merges))
	if err := t.specialTokens(files, &m, tokens); err != nil {
		return nil, err
	}
	return m, t.chatTemplate(files, &m)
}

// preTokenizer recognises the tokenizer by its parts.
func (t *tokenizer) preTokenizer() (string, error) {
	var normalizer struct {
		Type string `json:"type"`
	}
	if len(t.Normalizer) > 0 {
		if err := json.Unmarshal(t.Normalizer, &normalizer); err != nil {
			return "", fmt.Errorf("tokenizer.json: normalizer: %w", err)
		}
	}
	if normalizer.Type != "" && normalizer.Type != "NFC" { // NFC changes nothing that is typed on a keyboard
		return "", fmt.Errorf("%w: normalizer %s; if llama.cpp has a pre-tokenizer that does the same, name it with --pre", ErrTokenizer, normalizer.Type)
	}
	var step preTokenizerStep
	if err := json.Unmarshal(t.PreTokenizer, &step); err != nil {
		return "", fmt.Errorf("tokenizer.json: pre_tokenizer: %w", err)
	}
	regex, err := step.regex()
	if err != nil {
		return "", err
	}
	pre, known := preTokenizers[regex]
	if !known {
		return "", fmt.Errorf("%w: its split expression is %s; if llama.cpp has a pre-tokenizer that does the same, name it with --pre", ErrTokenizer, regex)
	}
	return pre, nil
}

// preTokenizerStep is a node of tokenizer.json's pre_tokenizer.
type preTokenizerStep struct {
	Type    string             `json:"type"`
	Steps   []preTokenizerStep `json:"pretokenizers"`
	Pattern struct {
		Regex string
	} `json:"pattern"`
	Behavior       string `json:"behavior"`
	Invert         bool   `json:"invert"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	UseRegex       *bool  `json:"use_regex"`
}

// regex returns the expression of the one shape that is known: a split by it, then bytes.
func (s preTokenizerStep) regex() (string, error) {
	if s.Type == "Sequence" && len(s.Steps) == 2 {
		split, bytes := s.Steps[0], s.Steps[1]
		bytesOnly := bytes.Type == "ByteLevel" && !bytes.AddPrefixSpace && bytes.UseRegex != nil && !*bytes.UseRegex
		if split.Type == "Split" && split.Behavior == "Isolated" && !split.Invert && bytesOnly {
			return split.Pattern.Regex, nil
		}
	}
	shape := s.Type
	for _, step := range s.Steps {
		shape += fmt.Sprintf(" %s %s", step.Type, step.Pattern.Regex)
	}
	return "", fmt.Errorf("%w: its pre-tokenizer is %q, not a split followed by ByteLevel; if llama.cpp has one that does the same, name it with --pre", ErrTokenizer, shape)
}

// tokens lists all tokens by id, with their types; ids without a token get a name that no text can spell.
func (t *tokenizer) tokens(vocabSize int) (tokens []string, types []int32, err error) {
	if vocabSize < len(t.Model.Vocab) {
		return nil, nil, fmt.Errorf("%w: %d tokens, but the embedding has %d rows", ErrTokenizer, len(t.Model.Vocab), vocabSize)
	}
	tokens, types = make([]string, vocabSize), make([]int32, vocabSize)
	for token, id := range t.Model.Vocab {
		if id < 0 || id >= vocabSize {
			return nil, nil, fmt.Errorf("%w: token %q has id %d, but the embedding has %d rows", ErrTokenizer, token, id, vocabSize)
		}
		if types[id] != 0 {
			return nil, nil, fmt.Errorf("%w: tokens %q and %q have the same id %d", ErrTokenizer, tokens[id], token, id)
		}
		tokens[id], types[id] = token, tokenNormal
	}
	for _, a := range t.AddedTokens {
		if a.ID < 0 || a.ID >= vocabSize {
			return nil, nil, fmt.Errorf("%w: added token %q has id %d, but the embedding has %d rows", ErrTokenizer, a.Content, a.ID, vocabSize)
		}
		tokens[a.ID], types[a.ID] = a.Content, tokenControl
		if !a.Special && !looksSpecial(a.Content) {
			tokens[a.ID], types[a.ID] = strings.ReplaceAll(a.Content, "▁", " "), tokenUserDefined
		}
	}
	for id := range tokens {
		if types[id] == 0 {
			tokens[id], types[id] = fmt.Sprintf("[PAD%d]", id), tokenUnused
		}
	}
	return tokens, types, nil
}

// looksSpecial tells tokens that are markup though they are not marked as special.
func looksSpecial(token string) bool {
	return strings.HasPrefix(token, "<|") && strings.HasSuffix(token, "|>")
}

// specialKinds are the special tokens that GGUF has keys for, in llama.cpp's order.
var specialKinds = []struct{ name, key string }{
	{"bos", "tokenizer.ggml.bos_token_id"}, {"eos", "tokenizer.ggml.eos_token_id"}, {"unk", "tokenizer.ggml.unknown_token_id"},
	{"sep", "tokenizer.ggml.seperator_token_id"}, {"pad", "tokenizer.ggml.padding_token_id"}, {"mask", "tokenizer.ggml.mask_token_id"},
}

// specialTokens writes the ids of special tokens: by tokenizer_config.json, else by config.json.
func (t *tokenizer) specialTokens(files fs.FS, m *gguf.Metadata, tokens []string) error {
	for _, kind := range specialKinds {
		if id, ok := t.addedID(t.config[kind.name+"_token"]); ok {
			m.Set(kind.key, uint32(id))
		}
	}
	var config map[string]json.RawMessage
	if err := readJSON(files, "config.json", &config); err != nil {
		return err
	}
	for _, kind := range specialKinds {
		if _, set := m.Get(kind.key); set {
			continue
		}
		if id, ok := configID(config, kind.name+"_token_id"); ok && id < len(tokens) {
			m.Set(kind.key, uint32(id))
		}
	}
	for _, kind := range []string{"bos", "eos", "sep"} {
		var add bool
		if raw, ok := t.config["add_"+kind+"_token"]; ok && json.Unmarshal(raw, &add) == nil && string(raw) != "null" {
			m.Set("tokenizer.ggml.add_"+kind+"_token", add)
		}
	}
	return t.endTokens(files, m, tokens, config)
}

// addedID finds an added token by the way tokenizer_config.json writes it: its content, alone or in an object.
func (t *tokenizer) addedID(raw json.RawMessage) (int, bool) {
	var content string
	if json.Unmarshal(raw, &content) != nil {
		var object addedToken
		if json.Unmarshal(raw, &object) != nil {
			return 0, false
		}
		content = object.Content
	}
	for _, a := range t.AddedTokens {
		if a.Content == content && content != "" {
			return a.ID, true
		}
	}
	return 0, false
}

// configID reads a single id from config.json, or from its text_config.
func configID(config map[string]json.RawMessage, key string) (int, bool) {
	var id *int
	if raw, ok := config[key]; ok && json.Unmarshal(raw, &id) == nil && id != nil && *id >= 0 {
		return *id, true
	}
	var text map[string]json.RawMessage
	if raw, ok := config["text_config"]; ok && json.Unmarshal(raw, &text) == nil {
		return configID(text, key)
	}
	return 0, false
}

// endsByName are tokens at which llama.cpp stops because of their text (llama-vocab.cpp: special_eog_ids).
var endsByName = []string{"<|im_end|>", "<|endoftext|>", "<|end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "</s>"}

// endTokens makes sure that llama.cpp stops at every token that the checkpoint calls an end: GGUF has one key for it,
// and two more for ends of turns and messages that serve when llama.cpp would not know the token by its text.
func (t *tokenizer) endTokens(files fs.FS, m *gguf.Metadata, tokens []string, config map[string]json.RawMessage) error {
	var generation map[string]json.RawMessage
	if err := readJSON(files, "generation_config.json", &generation); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	keys := []string{"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}
	if _, ok := m.Get("tokenizer.ggml.eos_token_id"); !ok {
		keys = slices.Insert(keys, 0, "tokenizer.ggml.eos_token_id")
	}
	for _, id := range append(idList(generation["eos_token_id"]), idList(config["eos_token_id"])...) {
		if id < 0 || id >= len(tokens) {
			return fmt.Errorf("%w: eos_token_id %d is not one of %d tokens", ErrTokenizer, id, len(tokens))
		}
		if slices.Contains(endsByName, tokens[id]) || slices.ContainsFunc(*m, func(kv gguf.KV) bool {
			return kv.Value == uint32(id) && (kv.Key == "tokenizer.ggml.eos_token_id" || kv.Key == "tokenizer.ggml.eot_token_id" || kv.Key == "tokenizer.ggml.eom_token_id")
		}) {
			continue
		}
		if len(keys) == 0 {
			return fmt.Errorf("%w: more ends than GGUF has keys for; token %d (%q) has none", ErrTokenizer, id, tokens[id])
		}
		m.Set(keys[0], uint32(id))
		keys = keys[1:]
	}
	return nil
}

// idList reads one id or a list of them.
func idList(raw json.RawMessage) []int {
	var ids []int
	if json.Unmarshal(raw, &ids) == nil {
		return ids
	}
	var id int
	if raw != nil && string(raw) != "null" && json.Unmarshal(raw, &id) == nil {
		return []int{id}
	}
	return nil
}

// chatTemplate writes the chat template: the file chat_template.jinja, which Transformers prefers, or what
// tokenizer_config.json or chat_template.json has.
func (t *tokenizer) chatTemplate(files fs.FS, m *gguf.Metadata) error {
	raw := t.config["chat_template"]
	if data, err := fs.ReadFile(files, "chat_template.jinja"); err == nil {
		m.Set("tokenizer.chat_template", strings.ReplaceAll(string(data), "\r\n", "\n"))
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if raw == nil {
		var file map[string]json.RawMessage
		if err := readJSON(files, "chat_template.json", &file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		raw = file["chat_template"]
	}
	if raw == nil || string(raw) == "null" {
		return nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		m.Set("tokenizer.chat_template", one)
		return nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return fmt.Errorf("tokenizer_config.json: chat_template: %w", err)
	}
	setNamedTemplates(m, named)
	return nil
}

// setNamedTemplates writes a list of templates: the one called default under the usual key, the others under theirs.
func setNamedTemplates(m *gguf.Metadata, named []struct{ Name, Template string }) {
	var others []string
	for _, n := range named {
		if n.Name == "default" {
			m.Set("tokenizer.chat_template", n.Template)
			continue
		}
		name := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, n.Name)
		m.Set("tokenizer.chat_template."+name, n.Template)
		others = append(others, name)
	}
	if len(others) > 0 {
		m.Set("tokenizer.chat_templates", others)
	}
}

func readJSON(files fs.FS, name string, into any) error {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
