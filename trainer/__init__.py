"""A 3D-parallel trainer on torch's own parallelism, every stage of it instrumented. Begin with ``trainer/run.py``."""
