package lora

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A base model that was tuned for chat by an adapter ends its turns with another token than the base does: unless the
// generation settings name both, it never stops. The merged folder's settings name every end that base, tokenizer and
// chat template speak of.

// endOfTurn is how the supported architectures' chat templates end a turn.
const endOfTurn = "<|im_end|>"

const generationFile = "generation_config.json"

// completeEnds returns generation_config.json with the ends that it lacks, nil where it lacks none, and which it got.
func completeEnds(dir string, config []member) (settings []byte, added []int, err error) {
	data, err := os.ReadFile(filepath.Join(dir, generationFile))
	if errors.Is(err, os.ErrNotExist) {
		data = []byte("{}")
	} else if err != nil {
		return nil, nil, err
	}
	fields, err := parseObject(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", generationFile, err)
	}
	have := ids(valueOf(fields, "eos_token_id"))
	all := slices.Clone(have)
	for _, id := range append(ids(valueOf(config, "eos_token_id")), tokenizerEnds(dir)...) {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	if len(all) == len(have) || len(all) == 1 { // a single end stands in config.json already
		return nil, nil, nil
	}
	list, err := json.Marshal(all)
	if err != nil {
		return nil, nil, err
	}
	fields = slices.DeleteFunc(fields, func(f member) bool { return f.key == "eos_token_id" })
	fields = append(fields, member{"eos_token_id", list})
	var b bytes.Buffer
	err = json.Indent(&b, joinObject(fields), "", "  ")
	b.WriteByte('\n')
	return b.Bytes(), all[len(have):], err
}

func valueOf(fields []member, key string) json.RawMessage {
	for _, f := range fields {
		if f.key == key {
			return f.value
		}
	}
	return nil
}

// ids reads a token id or a list of them; anything else is none.
func ids(value json.RawMessage) []int {
	var one *int
	if json.Unmarshal(value, &one) == nil && one != nil {
		return []int{*one}
	}
	var list []int
	if json.Unmarshal(value, &list) != nil {
		return nil
	}
	return list
}

// tokenizerEnds returns the ids of the tokenizer's end token and, if the chat template uses it, of the end of a turn.
// Files that are missing or of another form name no ends.
func tokenizerEnds(dir string) []int {
	settings, _ := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	template, _ := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	var config struct {
		EOS json.RawMessage `json:"eos_token"`
	}
	_ = json.Unmarshal(settings, &config)
	var names []string
	var name string
	var object struct{ Content string }
	if json.Unmarshal(config.EOS, &name) == nil && name != "" {
		names = append(names, name)
	} else if json.Unmarshal(config.EOS, &object) == nil && object.Content != "" {
		names = append(names, object.Content)
	}
	if strings.Contains(string(settings)+string(template), endOfTurn) {
		names = append(names, endOfTurn)
	}
	var found []int
	added := addedTokens(dir)
	for _, name := range names {
		if id, ok := added[name]; ok {
			found = append(found, id)
		}
	}
	return found
}

// addedTokens returns the special tokens of tokenizer.json by text.
func addedTokens(dir string) map[string]int {
	data, _ := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	var tokenizer struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	_ = json.Unmarshal(data, &tokenizer)
	tokens := map[string]int{}
	for _, t := range tokenizer.Added {
		tokens[t.Content] = t.ID
	}
	return tokens
}
