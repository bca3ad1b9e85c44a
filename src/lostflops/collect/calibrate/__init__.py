"""Performance of a cluster, measured inside it: collectives by level and size, and the roofline of a device.

    torchrun --nproc-per-node 8 -m lostflops.collect.calibrate --out calibration.json

It needs only the standard library and torch. `lostflops.predict.costs.calibration` reads the file that it writes.
"""
