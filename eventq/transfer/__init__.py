"""What comes in from elsewhere and goes out: packs, copies between threads, session files."""
