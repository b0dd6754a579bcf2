"""Import and export: packs, copies between threads, session files."""
