"""Named architectures at their published sizes, one file a family, collected into `PRESETS`."""

from importlib import import_module
from pkgutil import iter_modules

from ..config import ConfigError, ModelConfig

PRESETS: dict[str, ModelConfig] = {}
for _found in iter_modules(__path__):
    for _config in import_module(f".{_found.name}", __name__).PRESETS:
        if _config.name in PRESETS:
            raise ConfigError(f"two presets are named {_config.name}")
        PRESETS[_config.name] = _config
