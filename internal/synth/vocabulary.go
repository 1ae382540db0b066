package synth

import (
	"encoding/json"
	"fmt"
	"strings"
)

// vocabulary is a byte-level BPE: the 256 bytes, pairs of letters, three control tokens, and unused ids up to the size
// of the embedding.
type vocabulary struct {
	tokens               []string
	types                []int32
	merges               []string
	endOfText, endOfTurn int
	added                []string
}

// Token types (llama.h: enum llama_token_type).
const (
	typeNormal  int32 = 1
	typeControl int32 = 3
	typeUnused  int32 = 5
)

// chatTemplate is the plainest that marks who speaks.
const chatTemplate = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// smallest is the fewest tokens that a vocabulary has.
const smallest = 256 + 3

func newVocabulary(size int) *vocabulary {
	v := &vocabulary{added: []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}}
	for b := range 256 {
		v.add(byteLetter(byte(b)), typeNormal)
	}
	const letters = "etaoinshrdlucmfwypvbgkjqxz"
	for _, first := range append([]string{byteLetter(' ')}, strings.Split(letters, "")...) {
		for _, second := range letters {
			if len(v.tokens) < size-len(v.added) {
				v.merges = append(v.merges, first+" "+string(second))
				v.add(first+string(second), typeNormal)
			}
		}
	}
	v.endOfText, v.endOfTurn = len(v.tokens), len(v.tokens)+2
	for _, name := range v.added {
		v.add(name, typeControl)
	}
	for len(v.tokens) < size {
		v.add(fmt.Sprintf("[PAD%d]", len(v.tokens)), typeUnused)
	}
	return v
}

func (v *vocabulary) add(token string, kind int32) {
	v.tokens = append(v.tokens, token)
	v.types = append(v.types, kind)
}

// byteLetter is the letter that stands for a byte in byte-level BPE: itself where it can be seen, else one of the letters
// from U+0100 on, in the order of the bytes.
func byteLetter(b byte) string {
	seen := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	if seen(int(b)) {
		return string(rune(b))
	}
	letter := rune(0x100)
	for before := range int(b) {
		if !seen(before) {
			letter++
		}
	}
	return string(letter)
}

// pre is llama.cpp's name of the split that the architecture's models use.
func (v *vocabulary) pre(arch string) string {
	if strings.HasPrefix(arch, "qwen35") {
		return "qwen35"
	}
	return "qwen2"
}

// split is the same as a regular expression. Both differ in whether a combining mark belongs to a word.
func split(arch string) string {
	word := `\p{L}`
	if strings.HasPrefix(arch, "qwen35") {
		word = `[\p{L}\p{M}]`
	}
	mark := strings.Trim(word, "[]")
	return `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?` + word + `+|\p{N}| ?[^\s` + mark + `\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
}

// checkpointFiles are the tokenizer's files of a checkpoint.
func (v *vocabulary) checkpointFiles(arch string) (map[string][]byte, error) {
	vocab := map[string]int{}
	var added []any
	for id, token := range v.tokens {
		switch v.types[id] {
		case typeNormal:
			vocab[token] = id
		case typeControl:
			added = append(added, map[string]any{
				"id": id, "content": token, "special": true,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
			})
		}
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	files := map[string]any{
		"tokenizer.json": map[string]any{
			"version": "1.0", "truncation": nil, "padding": nil,
			"added_tokens": added,
			"normalizer":   map[string]any{"type": "NFC"},
			"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
				map[string]any{"type": "Split", "pattern": map[string]any{"Regex": split(arch)}, "behavior": "Isolated", "invert": false},
				byteLevel,
			}},
			"post_processor": nil,
			"decoder":        byteLevel,
			"model": map[string]any{
				"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
				"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": v.merges,
			},
		},
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
			"chat_template": chatTemplate, "clean_up_tokenization_spaces": false,
		},
		"generation_config.json": map[string]any{"eos_token_id": v.endOfTurn, "pad_token_id": v.endOfText},
	}
	out := map[string][]byte{}
	for name, content := range files {
		data, err := json.MarshalIndent(content, "", " ")
		if err != nil {
			return nil, err
		}
		out[name] = data
	}
	return out, nil
}
