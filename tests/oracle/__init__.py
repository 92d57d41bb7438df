"""Readers, writers and slow versions made from docs/ alone: nothing here uses seqpack."""
