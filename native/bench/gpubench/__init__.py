# SPDX-License-Identifier: Apache-2.0
"""The parts of gpu_vs_nccl.py. Only rank.py and what it imports need PyTorch."""
