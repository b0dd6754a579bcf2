"""Every value that eventq returns or stores, by subject: the glossary in code. Read it first."""
