"""The subcommands of `overnight`, by what they are about. Each is a few calls into flows, tasks and infra.

They import what they need when they are called: `overnight --help` does not wait for torch.
"""
