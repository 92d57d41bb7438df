"""Chat templates in the styles that models use, written for these tests, and their tokenizer."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

SAMPLE_TOKENIZER = Path(__file__).parents[1] / "sample_data" / "tokenizer.json"
SPECIAL_TOKENS = (
    *("<pad>", "<bos>", "<eos>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "<|user|>", "<|assistant|>", "<|end|>"),
)
SPACE_TAKING = ("<|user|>", "<|end|>")  # as in the tokenizer of Phi-3
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

CHATML = r"""{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- message['content'] + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

LLAMA_3 = r"""{% for message in messages %}
    {% if loop.first %}{{ bos_token }}{% endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation -%}
            {{ message['content'] | trim + '<|eot_id|>' }}
        {%- endgeneration -%}
    {% else %}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{% endfor %}
{% if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}"""

MISTRAL = r"""{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools and loop.last %}[TOOLS]{{ tools | tojson }}[/TOOLS]{% endif %}
        {{- '[INST] ' + message.content + '[/INST]' }}
    {%- elif message.tool_calls %}
        {%- generation %}{{ '[TOOL_CALLS] [' }}
        {%- for call in message.tool_calls %}
            {{- call.function | tojson }}{% if not loop.last %}{{ ', ' }}{% endif %}
        {%- endfor %}{{ ']' + eos_token }}{% endgeneration %}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{ ' ' + message.content + eos_token }}{% endgeneration %}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string }}}[/TOOL_RESULTS]
    {%- endif %}
{%- endfor %}"""

GEMMA = r"""{{ bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<start_of_turn>' + role + '\n' }}
    {%- if role == 'model' %}
        {%- generation %}{{ message['content'] | trim + '<end_of_turn>\n' }}{% endgeneration %}
    {%- else %}{{ message['content'] | trim + '<end_of_turn>\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

PHI_3 = r"""{% for message in messages %}{{ '<|' + message['role'] + '|>' + '\n' }}
{%- if message['role'] == 'assistant' %}
{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ message['content'] + '<|end|>' + '\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"""

QWEN_3 = r"""{%- if tools %}
    {{- '<|im_start|>system\n<tools>' }}
    {%- for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}{{ '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last_query=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{% set ns.last_query = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or thought) %}
            {{- '<think>\n' + thought + '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{ '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

TEMPLATES = {"chatml": CHATML, "llama-3": LLAMA_3, "mistral": MISTRAL, "gemma": GEMMA}
TEMPLATES |= {"phi-3": PHI_3, "qwen-3": QWEN_3}


def without_blocks(template: str) -> str:
    """Return a template without its generation blocks, that writes the same text.

    An empty comment takes the place of each tag, and has its signs for white space.
    """
    return re.sub(r"{%(-?)\s*(?:end)?generation\s*(-?)%}", r"{#\1 \2#}", template)


@functools.cache
def chat_tokenizer() -> Tokenizer:
    """Return the sample tokenizer with SPECIAL_TOKENS."""
    tokenizer = Tokenizer.from_file(str(SAMPLE_TOKENIZER))
    tokenizer.add_special_tokens(
        [AddedToken(token, rstrip=token in SPACE_TAKING) for token in SPECIAL_TOKENS]
    )
    return tokenizer


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}
