"""What pods and nodes say in labels and annotations: keys, JSON shapes, parsing and formatting.

The control plane's wire formats that sit *inside* objects live here, so that plugins can read a pod's
wishes without knowing manifests, and manifests can write decisions back in the same shapes.
"""
