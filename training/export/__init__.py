"""Fitted rankers as ONNX graphs, and the gate that a graph passes before it is sealed."""
