"""Language models: from a file to tokens, a chat and an answer.

Begin with `config`, which says as data what each architecture is; `model` computes it; `load` fills
it from a GGUF file or a Hugging Face folder. `tokens` and `template` turn text into tokens and
back, `generate` draws tokens, `cli` is the program (`python -m weft.llm`).
"""
