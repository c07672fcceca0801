"""Backprop on parts of a graph: exact halos give what one device gives, stale ones lag an epoch behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfgnn.baseline import parallel
from gfgnn.baseline.adam import AdamSolver
from gfgnn.baseline.parallel import StaleAdamSolver
from gfgnn.baseline.sums import batch_norm, total
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError
from gfgnn.comm.base import Communicator
from gfgnn.comm.grid import make_grid
from gfgnn.comm.thread import run_threads
from gfgnn.config import AdamConfig, ModelConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model
from gfgnn.problem import Problem, prepare
from gfgnn.shards import make_shards, shard_problem
from gfgnn.train import train
from tests.grids import distance, random_parts
from tests.random_graphs import random_graph

FAMILIES = ("gcn", "gcnii", "sage", "resgcn", "sgc", "sign")
