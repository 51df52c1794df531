"""What runs as several processes on torch.distributed, and how they are started from a notebook."""
