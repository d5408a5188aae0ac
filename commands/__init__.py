"""The commands, one file each: arguments become one call into the packages."""
