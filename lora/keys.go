package lora

import (
	"fmt"
	"slices"
	"strings"
)

// role is what a tensor of an adapter is for its module.
type role string

const (
	roleA          role = "lora_A.weight"                        // [rank, in]
	roleB          role = "lora_B.weight"                        // [out, rank]
	roleBBias      role = "lora_B.bias"                          // [out]
	roleEmbedA     role = "lora_embedding_A"                     // [rank, vocabulary]
	roleEmbedB     role = "lora_embedding_B"                     // [width, rank]
	roleMagnitude  role = "lora_magnitude_vector"                // DoRA: [out]
	roleTokens     role = "token_adapter.trainable_tokens_delta" // [tokens, width]: new rows of the embedding
	roleBaseWeight role = "base_layer.weight"                    // the base's weight under a LoRA layer: a copy
	roleBaseBias   role = "base_layer.bias"                      // the base's bias: trained, or a copy
	roleWeight     role = "weight"                               // a module that was trained whole, or a copy
	roleBias       role = "bias"
)

// wrappers are path elements that training frameworks put around modules.
var wrappers = []string{"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}

// key is a tensor's name taken apart.
type key struct {
	module  string // path in the model that was trained: model.layers.0.self_attn.q_proj
	role    role
	adapter string // PEFT's name of the adapter, which belongs in no saved file but occurs
}

// parseKey reads a name such as base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight.
func parseKey(name string) (key, error) {
	rest := name
	for {
		short, found := strings.CutPrefix(rest, "base_model.model.")
		if !found {
			break
		}
		rest = short
	}
	parts := slices.DeleteFunc(strings.Split(rest, "."), func(part string) bool { return slices.Contains(wrappers, part) })
	at := slices.IndexFunc(parts, startsRole)
	if at < 0 {
		at = len(parts) - 1
	}
	k := key{module: strings.Join(parts[:at], ".")}
	var ok bool
	k.role, k.adapter, ok = parseRole(parts[at:])
	if !ok || k.module == "" {
		return key{}, fmt.Errorf("%s is none of the tensors that a LoRA adapter has", name)
	}
	return k, nil
}

func startsRole(part string) bool {
	switch part {
	case "base_layer", "token_adapter", "modules_to_save", "original_module":
		return true
	}
	return strings.HasPrefix(part, "lora_")
}

// parseRole reads what follows the module's path. PEFT puts the adapter's name after the first or second part.
func parseRole(parts []string) (r role, adapter string, ok bool) {
	named := func(full role, before int) bool {
		want := strings.Split(string(full), ".")
		switch {
		case slices.Equal(parts, want):
		case len(parts) == len(want)+1 && slices.Equal(slices.Delete(slices.Clone(parts), before, before+1), want):
			adapter = parts[before]
		default:
			return false
		}
		r = full
		return true
	}
	for _, full := range []role{roleA, roleB, roleBBias, roleEmbedA, roleEmbedB, roleMagnitude} {
		if named(full, 1) {
			return r, adapter, true
		}
	}
	if named(roleTokens, 2) {
		return r, adapter, true
	}
	last := role(parts[len(parts)-1])
	if last != roleWeight && last != roleBias {
		return "", "", false
	}
	switch head := parts[0]; {
	case head == "lora_magnitude_vector" && last == roleWeight && len(parts) <= 3: // the form in a running model
		return roleMagnitude, strings.Join(parts[1:len(parts)-1], ""), true
	case head == "modules_to_save" && len(parts) <= 3:
		return last, strings.Join(parts[1:len(parts)-1], ""), true
	case len(parts) == 2 && (head == "base_layer" || head == "original_module"),
		len(parts) == 3 && head == "token_adapter" && parts[1] == "base_layer":
		return role("base_layer." + string(last)), "", true
	}
	return last, "", len(parts) == 1
}
