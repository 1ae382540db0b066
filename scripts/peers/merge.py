"""Merges an adapter as PEFT's documentation does: merge.py BASE ADAPTER OUT, all folders."""
import sys

import peft
import transformers

base, adapter, out = sys.argv[1:]
model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype="auto")
peft.PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(out)
