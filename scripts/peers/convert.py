"""llama.cpp's convert_hf_to_gguf.py on a checkpoint with a tokenizer of our own: convert.py LLAMA_SOURCES ARGUMENTS…

The converter recognises a tokenizer by the ids that it gives for one text, which only published vocabularies do. That
check, and nothing else, is replaced by its answer for Qwen2."""
import runpy
import sys
from pathlib import Path

sources = Path(sys.argv[1]).resolve()
sys.path[:0] = [str(sources / "gguf-py"), str(sources)]

import conversion.base

conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
sys.argv = sys.argv[1:]
sys.argv[0] = str(sources / "convert_hf_to_gguf.py")
runpy.run_path(sys.argv[0], run_name="__main__")
