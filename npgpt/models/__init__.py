"""One file per architecture; the wiring of residuals and norms is written out in each."""
