"""What a cluster can do, measured inside it: collectives by level and size, and the roofline of a device.

    torchrun --nproc-per-node 8 -m lostflops.collect.calibrate --out calibration.json

Standard library and torch alone; the file that comes of it is read by `lostflops.predict.costs.calibration`.
"""
