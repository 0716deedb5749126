"""Simulates a provider: a real HTTP server that answers deterministically and fails on request.

It stands in for OpenAI-style and Anthropic-style upstreams in the demo, the tests and the benchmark. The model's name
in a request decides how it behaves (`behaviour.py` lists the words); `python -m simulator --port 8001` starts it
without Django.

A token is a whitespace-separated word, so that a test can count tokens by eye (`call.py`).
"""
