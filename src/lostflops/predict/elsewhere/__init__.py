"""A recorded run on devices that it never ran on, side by side."""
