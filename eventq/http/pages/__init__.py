"""The pages: what a person sees of threads, and does to them, as HTML that needs no script."""
