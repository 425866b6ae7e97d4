"""Listening ports, protocol detection, WebSocket framing and byte-stream faults."""
