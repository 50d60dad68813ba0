"""Fitted rankers as ONNX graphs, and the parity check that a graph passes before it is sealed."""
