"""GPUs of any vendor, through the files of the kernel's DRM drivers: no vendor library is needed."""

from exporter.providers.protocol import OpenContext, Opened


def open_drm(context: OpenContext) -> Opened:
    """Open the cards that DRM shows. Raises ProviderError where there is none that sysfs tells of."""
    # The parent counts cards, for which it needs this package and not the rest of it.
    from exporter.providers.drm.opening import open_cards  # noqa: PLC0415 -- see above

    return open_cards(context)
