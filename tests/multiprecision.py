"""The arithmetic of the references: a private context of 80 digits, so that no global setting is touched."""

from mpmath import MPContext

MP = MPContext()
MP.dps = 80
