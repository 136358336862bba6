"""Number formats of served weights, and which tensors of a weights folder are in which.

`formats` says how a weight becomes numbers and scales and back, `schemes` how a model's config.json declares
that, `recipe` which tensors of one model it concerns. Knows torch only: no trainer, no engine.
"""
