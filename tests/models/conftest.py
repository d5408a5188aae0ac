"""transformers looks at local files alone."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read at its first import
