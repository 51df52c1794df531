"""Units of size: GiB (2**30) for capacity, GB (10**9) for bandwidth and traffic."""

KIB = 2**10
MIB = 2**20
GIB = 2**30
KB = 10**3
MB = 10**6
GB = 10**9
TB = 10**12
