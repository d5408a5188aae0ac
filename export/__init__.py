"""Export: a source model becomes a folder with `model.onnx` and `artifact.json`."""
