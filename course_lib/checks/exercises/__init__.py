"""The exercises, one module or package for each notebook; each exports `EXERCISES`."""
