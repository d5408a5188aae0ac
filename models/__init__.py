"""Reference models: frozen configurations, and the modules that they build."""
