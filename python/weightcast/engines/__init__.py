"""What the engines of others share that follow the daemon of their host: vllm/ and sglang/ build on it, and it imports neither.

Start with _installs.py (what is done when), then _rank.py (one process of an engine), _listener.py (what it hears before its
orders), _places.py and _recording.py (where the model's loader puts what) and _placed_model.py (which writes there).
"""
