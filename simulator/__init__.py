"""A simulated provider: a real HTTP server that answers deterministically and fails on request.

It stands in for OpenAI-style and Anthropic-style upstreams in the demo, the tests and the benchmark. What it does is
steered by the model name it is sent (`behaviour.py` lists the words); `python -m simulator --port 8001`
starts it without Django.

A token is a whitespace-separated word, so that a test can count tokens by eye (`call.py`).
"""
