"""Reports: records become tables and charts, and these become pages."""
