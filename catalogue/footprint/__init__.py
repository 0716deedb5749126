"""Estimates the energy of tokens and the carbon intensity of electricity."""
