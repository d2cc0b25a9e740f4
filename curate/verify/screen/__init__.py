"""The static screen: what can be said of a program's text; labels, most of which decide nothing."""
