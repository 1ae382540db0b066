// Package lora reads LoRA adapters as PEFT saves them and merges them into the base model they were trained on, to the
// last bit as PEFT's merge_and_unload does it, for Hugging Face checkpoints and for GGUF files.
//
// The steps, each a type of its own:
//
//	Open         folder, .safetensors or zip → Adapter: its Config and its tensors, grouped by module
//	OpenBase     checkpoint folder or GGUF → Base: named tensors, lineage, what its metadata says it is
//	NewPlan      adapters and base → Plan: which base tensor each adapter tensor changes, and how. Every adapter
//	             tensor lands on exactly one base tensor and every declared target is hit, or there is no Plan
//	Plan.Judge   is this the base that each adapter was trained on, and what shows it
//	Plan.Merge   the merged model, streamed tensor by tensor under a temporary name, checked, then renamed
//
// Beside them Verify tells from the weights alone whether a merged model is a base plus its adapters, and
// Plan.Export writes the adapter as GGUF for use at run time.
//
// An Adapter's delta of a weight W [out, in] is scale · B · A with A [rank, in] and B [out, rank].
package lora
