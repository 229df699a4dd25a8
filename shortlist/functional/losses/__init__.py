"""The losses, and the operators with closed derivatives that several of them share."""
