"""Applets: checking, compiling, linking and running WebAssembly modules."""
