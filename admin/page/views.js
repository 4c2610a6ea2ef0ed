<!doctype html><title>Operations Center</title>
