"""Writes chat_templates.json beside this script: conversations as transformers renders them by the known chat templates, which
tests/data/chat/chat_template_test.cpp must render to the same texts, or refuse where transformers does.

    python3 -m venv venv && venv/bin/pip install transformers jinja2 && venv/bin/python make_chat_templates.py TEMPLATES

TEMPLATES has the templates' texts: TEMPLATES/*.json with `template_text`. It is ../shared/golden/families/chat where that is there.
"""
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

# name of the template here -> name of a file of TEMPLATES, or the text of a widely copied template
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
TEMPLATES = {
    "chatml": CHATML, "chatml-strict": "chatml_cj", "llama2": LLAMA2, "llama2-strict": "llama2_cj", "llama3": "llama3",
    "llama3-strict": "llama3_cj", "llama3.1": "llama3.1", "mistral": "mistral_v0.2", "mistral-strict": "mistral_cj",
    "mistral-nemo": "mistral_nemo", "zephyr": "tinyllama_chat", "zephyr-strict": "zephyr_cj", "vicuna": "vicuna_cj",
    "smollm2": "smollm2", "qwen2.5": "qwen2.5", "qwen2.5-training": "qwen2.5_trl_training", "qwen3": "qwen3", "qwen3-no-thinking": "qwen3_no_thinking",
    "qwen3-training": "qwen3_trl_training",
}
# One letter a message (s, u, a), then its text.
CONVERSATIONS = [
    ["u\u00a0 Q\u3000\n"],
    ["s  S\n", "u\nQ "],
    ["s", "uQ"],
    ["uQ", "a A\n"],
    ["uQ", "aA", "uR", "aB"],
    ["sS", "uQ", "aA", "uR"],
    ["sS", "uQ", "aA", "uR", "aB"],
    ["uQ", "sS", "uR"],
    ["sS", "sT", "uQ"],
    ["sS", "uQ", "sT", "uR"],
    ["uQ", "uR"],
    ["aA", "uQ"],
    ["uQ", "aA", "aB", "uR", "aC", "aD"],
    ["uQ", "a<think>\nT\n</think>\n\nA", "aB", "a\nC"],
    ["uQ", "a<think>T</think>A</think>\nB", "uR", "a\n<think>\n\n</think>\n\n\nC"],
    ["uQ", "aA", "u<tool_response>R</tool_response>", "aB"],
    ["aA"],
    ["sS"],
]
ROLES = {"s": "system", "u": "user", "a": "assistant"}


def render(text, arguments, messages, prompts):
    try:
        return _compile_jinja_template(text).render(messages=messages, add_generation_prompt=prompts, bos_token="<B>", eos_token="<E>", **arguments)
    except Exception:  # whatever a template raises, transformers passes on
        return None


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    rows = []
    for name, source in TEMPLATES.items():
        stored = {} if "{" in source else json.loads((folder / f"{source}.json").read_text())
        text, arguments = stored.get("template_text", source), stored.get("arguments", {})
        rendered, prompts = [], set()
        for conversation in CONVERSATIONS:
            messages = [{"role": ROLES[m[0]], "content": m[1:]} for m in conversation]
            whole, prompt = render(text, arguments, messages, False), render(text, arguments, messages, True)
            assert (whole is None) == (prompt is None) and (whole is None or prompt.startswith(whole))
            rendered.append(whole)
            if whole is not None:
                prompts.add(prompt[len(whole):])
        assert len(prompts) == 1
        same = next((row["name"] for row in rows if row["rendered"] == rendered), None)
        rows.append({"name": name, "prompt": prompts.pop(), "rendered": same or rendered})
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    pathlib.Path(__file__).with_name("chat_templates.json").write_text(
        f'{{"conversations": {json.dumps(CONVERSATIONS, ensure_ascii=False)},\n"templates": [\n{lines}]}}\n')
