"""Energy and carbon: estimates, factors, the grid."""
